"""Sources of page messages: JSON Lines, tables, web archives and directories of saved pages."""
