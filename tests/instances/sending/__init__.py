"""Links in virtual time, and devices behind them."""
