"""What the server tells its operator: metrics, request ids, logs. Knows no framework and no engine."""
