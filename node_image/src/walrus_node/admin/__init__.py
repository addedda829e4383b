"""The admin service: gRPC for people and operators, in the control plane."""
