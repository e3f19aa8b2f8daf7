"""The columns of a lowered step and of an item's record."""

HEADER = 24  # integers a step
IS_PRODUCT = 0
STATES = 1  # of the variable summed out
MESSAGE = 2  # offset of the message
ROWS = 3  # its cells
IS_ROOT = 4
LEFT = 5  # first column of the left group, or of the only one
RIGHT = 11  # first column of the right group
SHARED = 17  # joint states of the variables in both groups,
OUTER = 18  # in the left one only,
INNER = 19  # in the right one only
LEFT_TURNED = 20  # stored transposed
RIGHT_TURNED = 21
LEFT_MARGINAL = 22  # offset of the group's marginal, where the group is not an item as it lies
RIGHT_MARGINAL = 23

# Within a group's columns, after the offset of its table.
ITEMS = 1  # its first item's record
COUNT = 2
CELLS = 3
IS_ALIAS = 4
LENGTH = 5  # of a row of the table

ITEM = 4  # integers an item's record: offset, place of its row map, stride along a row, cells
