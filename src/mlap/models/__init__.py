"""Everything that predicts: baselines, calibration, conformal sets and the weights of an ensemble."""
