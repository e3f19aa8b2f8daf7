"""Reading records: columns, codes of declared states, counts."""
