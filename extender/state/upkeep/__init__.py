"""Ledger rows that do not match their pods, and which index holds each live pod."""
