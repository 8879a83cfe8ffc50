package cli

import (
	"fmt"
	"io"
	"strings"
	"text/tabwriter"

	"k8s.io/apimachinery/pkg/api/meta"
	"k8s.io/apimachinery/pkg/runtime"
	"k8s.io/client-go/util/jsonpath"
)

// outputColumns is the value of -o that precedes a specification of columns.
const outputColumns = "custom-columns="

// writeColumns prints an object, or the items of a list, in columns such as NAME:.metadata.name,TITLE:.status.alert.title, as
// kubectl does. Its printer is in k8s.io/kubectl, which is a large dependency for one function.
func writeColumns(specification string, object runtime.Object, headers bool, out io.Writer) error {
	var titles []string
	var paths []*jsonpath.JSONPath
	for column := range strings.SplitSeq(specification, ",") {
		title, expression, found := strings.Cut(column, ":")
		path, err := parsePath(expression)
		if !found || title == "" || err != nil {
			return fmt.Errorf("custom column %q does not have the form TITLE:.path.to.field", column)
		}
		titles, paths = append(titles, title), append(paths, path)
	}
	items := []runtime.Object{object}
	if meta.IsListType(object) {
		var err error
		if items, err = meta.ExtractList(object); err != nil {
			return err
		}
	}
	const minimum, tab, padding = 6, 4, columnGap
	table := tabwriter.NewWriter(out, minimum, tab, padding, ' ', 0)
	if headers {
		_, _ = fmt.Fprintln(table, strings.Join(titles, "\t"))
	}
	for _, item := range items {
		fields, err := runtime.DefaultUnstructuredConverter.ToUnstructured(item)
		if err != nil {
			return err
		}
		cells := make([]string, len(paths))
		for i, path := range paths {
			if cells[i], err = columnCell(path, fields); err != nil {
				return fmt.Errorf("custom column %s: %w", titles[i], err)
			}
		}
		_, _ = fmt.Fprintln(table, strings.Join(cells, "\t"))
	}
	return table.Flush()
}

// columnCell returns the values at a path, or <none>.
func columnCell(path *jsonpath.JSONPath, fields map[string]any) (string, error) {
	results, err := path.FindResults(fields)
	if err != nil {
		return "", err
	}
	var values []string
	for _, found := range results {
		for _, value := range found {
			values = append(values, safe(fmt.Sprint(value.Interface())))
		}
	}
	if len(values) == 0 {
		return "<none>", nil
	}
	return strings.Join(values, ","), nil
}
