"""The auditor's judge, on histories that the tests write."""
