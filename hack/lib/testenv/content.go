package testenv

import (
	"encoding/json"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// Bags returns a view of the four bags of an alert's content, by their names, with all values as JSON.
func Bags(c *v1alpha1.AlertContent) map[string]v1alpha1.Bag {
	return map[string]v1alpha1.Bag{
		"labels": quoted(c.Labels), "annotations": quoted(c.Annotations), "values": c.Values, "custom": c.Custom,
	}
}

func quoted(texts map[string]string) v1alpha1.Bag {
	if texts == nil {
		return nil
	}
	bag := v1alpha1.Bag{}
	for name, text := range texts {
		bag[name], _ = json.Marshal(text) // no string fails to encode
	}
	return bag
}
