from .census import read_census
from .linear_measurements import from_mbi, from_opendp
from .long_form import read_counts
from .published_tables import read_folder

__all__ = ["from_mbi", "from_opendp", "read_census", "read_counts", "read_folder"]
