"""The main job behind `make run`: a year of flights through three brokers, archived by Spark, proved."""
