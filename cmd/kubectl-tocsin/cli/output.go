package cli

import (
	"cmp"
	"fmt"
	"io"
	"math/big"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/cli-runtime/pkg/genericclioptions"
	"k8s.io/client-go/util/jsonpath"

	"github.com/tocsin-dev/tocsin/api/v1alpha1"
)

// outputFlag is -o for objects, with the formats of cli-runtime's printers. Without it, a command prints for people.
type outputFlag struct {
	*genericclioptions.PrintFlags
	noHeaders bool // of custom columns
}

func newOutputFlag() outputFlag {
	return outputFlag{PrintFlags: genericclioptions.NewPrintFlags("")}
}

func (o outputFlag) addFlag(command *cobra.Command, usage string) {
	o.AddFlags(command)
	command.Flags().Lookup("output").Usage = usage
}

func (o outputFlag) isSet() bool { return *o.OutputFormat != "" }

// write prints an object in the format of -o. For a list, "-o name" prints one name per line.
func (o outputFlag) write(object runtime.Object, out io.Writer) error {
	if columns, found := strings.CutPrefix(*o.OutputFormat, "custom-columns="); found {
		return writeColumns(columns, object, !o.noHeaders, out)
	}
	printer, err := o.WithTypeSetter(newScheme()).ToPrinter()
	if err != nil {
		return err
	}
	if *o.OutputFormat == "name" && meta.IsListType(object) {
		return meta.EachListItem(object, func(item runtime.Object) error { return printer.PrintObj(item, out) })
	}
	return printer.PrintObj(object, out)
}

// parsePath parses a JSONPath expression such as .status.alertCount or {.status.alertCount}.
func parsePath(expression string) (*jsonpath.JSONPath, error) {
	path := jsonpath.New("path").AllowMissingKeys(true)
	return path, path.Parse("{" + strings.Trim(expression, "{}") + "}")
}

// valuesAt returns the values at a path of an object; none if a field is missing.
func valuesAt(path *jsonpath.JSONPath, object runtime.Object) (values []any, err error) {
	fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(object)
	if err != nil {
		return nil, err
	}
	results, err := path.FindResults(fields)
	for _, value := range slices.Concat(results...) {
		values = append(values, value.Interface())
	}
	return values, err
}

// writeColumns prints an object, or the items of a list, in columns such as NAME:.metadata.name,TITLE:.status.alert.title, as
// kubectl does. Its printer is in k8s.io/kubectl, which is a large dependency for one function.
func writeColumns(specification string, object runtime.Object, headers bool, out io.Writer) (err error) {
	t := &table[runtime.Object]{screen: &screen{out: out}, noHeaders: !headers}
	for column := range strings.SplitSeq(specification, ",") {
		title, expression, found := strings.Cut(column, ":")
		path, pathErr := parsePath(expression)
		if !found || title == "" || pathErr != nil {
			return fmt.Errorf("custom column %q does not have the form TITLE:.path.to.field", column)
		}
		t.add(title, 0, func(item runtime.Object) string {
			values, valueErr := valuesAt(path, item)
			if valueErr != nil {
				err = fmt.Errorf("custom column %s: %w", title, valueErr)
			}
			var texts []string
			for _, value := range values {
				texts = append(texts, fmt.Sprint(value))
			}
			return cmp.Or(strings.Join(texts, ","), "<none>")
		})
	}
	items := []runtime.Object{object}
	if meta.IsListType(object) {
		if items, err = meta.ExtractList(object); err != nil {
			return err
		}
	}
	printErr := t.print(items) // evaluates the columns, which set err
	return cmp.Or(err, printErr)
}

// sortBy sorts Incidents by a JSONPath expression, as kubectl get --sort-by does. Those without the field come first.
func sortBy(incidents []*v1alpha1.Incident, expression string) error {
	path, err := parsePath(expression)
	if err != nil {
		return fmt.Errorf("--sort-by %q: %w", expression, err)
	}
	keys := map[*v1alpha1.Incident][]any{} // at most one each
	for _, incident := range incidents {
		values, err := valuesAt(path, incident)
		if err != nil {
			return fmt.Errorf("--sort-by %q: %w", expression, err)
		}
		values = slices.DeleteFunc(values, func(value any) bool { return value == nil })
		keys[incident] = values[:min(1, len(values))]
	}
	slices.SortStableFunc(incidents, func(a, b *v1alpha1.Incident) int {
		return slices.CompareFunc(keys[a], keys[b], compareKeys)
	})
	return nil
}

// compareKeys compares numbers by value and everything else as text, after all numbers. API timestamps sort correctly as text.
func compareKeys(a, b any) int {
	x, y := number(a), number(b)
	switch {
	case x != nil && y != nil:
		return x.Cmp(y)
	case x != nil:
		return -1
	case y != nil:
		return 1
	}
	return strings.Compare(fmt.Sprint(a), fmt.Sprint(b))
}

// number returns a number of any size without rounding; nil for another value.
func number(value any) *big.Float {
	switch value := value.(type) {
	case int64:
		return new(big.Float).SetInt64(value)
	case float64:
		return big.NewFloat(value)
	}
	return nil
}
