"""Trackers: the metrics of runs, figures and tables in TensorBoard, Weights & Biases or MLflow. Imports no torch."""
