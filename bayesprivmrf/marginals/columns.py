"""Columns of a lowered step, of a group within it, and of an item: the instruction set of the interpreter."""

HEADER = 24  # integers a step
IS_PRODUCT = 0  # 1 where the step is a product of two groups, 0 where it goes cell by cell
STATES = 1  # of the variable summed out
MESSAGE = 2  # offset of the message
ROWS = 3  # its cells
IS_ROOT = 4  # 1 where the separator is empty
LEFT = 5  # first column of the left group, or of the only one
RIGHT = 11  # first column of the right group
SHARED = 17  # joint states of the variables in both groups,
OUTER = 18  # in the left one only,
INNER = 19  # in the right one only
LEFT_TURNED = 20  # 1 where the left group is stored transposed
RIGHT_TURNED = 21  # the same of the right group
LEFT_MARGINAL = 22  # offset of the left group's marginal, where the group is not an item as it lies
RIGHT_MARGINAL = 23  # the same of the right group

# Within a group's columns, after the offset of its table.
ITEMS = 1  # its first item's record
COUNT = 2  # number of its items
CELLS = 3  # of its table
IS_ALIAS = 4  # 1 where the table is its one item as it lies, and is not made
LENGTH = 5  # of a row of the table

ITEM = 4  # integers an item's record: offset, place of its row map, stride along a row, cells
