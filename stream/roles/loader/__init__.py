"""`neardup load`: rows -> journal, once (rule 21)."""
