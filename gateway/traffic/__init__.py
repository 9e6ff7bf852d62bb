"""Figures of requests for dashboards: counts, tokens and histograms by the minute, tenant and adapter."""
