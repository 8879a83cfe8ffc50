package cli

import (
	"fmt"
	"os"

	"github.com/spf13/pflag"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
	"github.com/tocsin-dev/tocsin/webhookserver/mapping"
)

// presetFileFlag is the flag that names the file of a preset, as in webhookserver/mapping/presets.
const presetFileFlag = "preset-file"

func addPresetFileFlag(flags *pflag.FlagSet, file *string) {
	flags.StringVar(file, presetFileFlag, "", "File with a preset that you are writing.")
}

// usePresetFile makes an integration use the preset of a file.
func usePresetFile(integration *v1alpha1.WebhookIntegration, file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	preset, err := mapping.UseDraft(text)
	if err != nil {
		return fmt.Errorf("reading the preset in %s: %w", file, err)
	}
	integration.Spec.Preset = preset.Name
	integration.Spec.LateFiringWindow = preset.LateFiringWindow
	return nil
}
