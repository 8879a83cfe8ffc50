package v1alpha1

// PresetAuto is the value of spec.preset that stands for the preset that recognizes a payload.
const PresetAuto = "auto"

// RecognizedKeyPrefix returns what precedes the dedup keys of alerts that PresetAuto had a preset read: tools that share an
// integration must not resolve each other's alerts.
func RecognizedKeyPrefix(preset string) string { return preset + "/" }
