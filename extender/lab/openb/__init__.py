"""The openb trace: placement only, beside the published results of the FGD paper."""
