"""The auditor's judge, on histories made by hand."""
