"""Thalweg beside Apache Kafka and the floor: what bench/compare runs. Standard library only."""
