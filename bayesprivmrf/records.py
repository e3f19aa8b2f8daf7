"""Records from a file, and the declared recoding of their values into states.

This is the sensitive side: what `read_records` and `recode` return is data, not a release. They read no state, bound
or type off the data: a value becomes a state by the rule that the model file declares, or stays as it is, and
counting then refuses it. `read_declaration` reads the model file, which is public.
"""

from bayesprivmrf.mechanisms.reading.files import read_records
from bayesprivmrf.mechanisms.reading.recoding import recode
from bayesprivmrf.model.declaration_file import read_declaration

__all__ = ["read_declaration", "read_records", "recode"]
