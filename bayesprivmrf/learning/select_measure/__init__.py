"""SelectMeasure after its noise is given: choice, measurement, fit and interval."""
