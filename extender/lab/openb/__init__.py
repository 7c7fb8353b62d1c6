"""The openb trace: placement only, compared with the published results of the FGD paper."""
