"""A processor that is not there: runs take as long as their networks say."""
