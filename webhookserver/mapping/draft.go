package mapping

import (
	"errors"
	"fmt"

	"sigs.k8s.io/yaml"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// draft is a preset that somebody is writing. Integrations that name it use it, also in place of one that ships with Tocsin.
var draft *Preset

// UseDraft reads a preset from the text of its file and makes it the draft: for commands that explain one payload, not for a
// server. The error joins a *CompileError for each mistake.
func UseDraft(text []byte) (*Preset, error) {
	preset := &Preset{}
	if err := yaml.UnmarshalStrict(text, preset); err != nil {
		return nil, err
	}
	if preset.Name == "" || preset.Name == Auto {
		return nil, fmt.Errorf("the name of a preset cannot be %q", preset.Name)
	}
	_, err := compileMapping(preset.Name, &preset.Mapping)
	mistakes := []error{err}
	for i, rule := range preset.Recognition {
		if _, err := compileMapping(preset.Name, &v1alpha1.Mapping{Drop: rule.Where}); err != nil {
			mistakes = append(mistakes, fmt.Errorf("recognition[%d].where: %w", i, err))
		}
	}
	if err := errors.Join(mistakes...); err != nil {
		return nil, err
	}
	draft = preset
	return preset, nil
}
