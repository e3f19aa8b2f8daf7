from .mechanism import ParityQueries

__all__ = ["ParityQueries"]
