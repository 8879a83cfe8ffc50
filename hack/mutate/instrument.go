package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/importer"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
)

// mutant is one small change.
type mutant struct {
	number int
	name   string // such as "controllers/fold/merge.go:31: < → <="
}

// switchCode is in each package with mutants: it tells which one is on, and notes those that are executed.
const switchCode = `package %s

import (
	"os"
	"strconv"
	"sync"
)

var (
	mutantsExecuted sync.Map
	mutantOn, _     = strconv.Atoi(os.Getenv("MUTANT"))
	mutantsFile     = os.Getenv("MUTANTS_EXECUTED")
)

func mutantIs(number int) bool {
	if mutantsFile != "" {
		if _, known := mutantsExecuted.LoadOrStore(number, true); !known {
			if file, err := os.OpenFile(mutantsFile, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o600); err == nil {
				_, _ = file.WriteString(strconv.Itoa(number) + "\n")
				_ = file.Close()
			}
		}
	}
	return number == mutantOn
}
`

// instrument writes copies of packages with all their mutants into a folder, and the file for "go build -overlay".
func instrument(folder string, packages []string) (mutants []mutant, overlay string, err error) {
	replaced := map[string]string{}
	for i, name := range packages {
		p, err := load(name)
		if err != nil {
			return nil, "", err
		}
		texts := map[string]string{filepath.Join(p.dir, "mutants.go"): fmt.Sprintf(switchCode, p.Name())}
		for _, path := range slices.Sorted(maps.Keys(p.files)) {
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, "", err
			}
			s := &source{loaded: p, path: path, text: string(text), syntax: p.files[path], mutants: &mutants, before: map[int]string{},
				after: map[int]string{}}
			texts[path] = s.rewrite()
		}
		for path, text := range texts {
			replaced[path] = filepath.Join(folder, fmt.Sprint(i, "-", filepath.Base(path)))
			if err := os.WriteFile(replaced[path], []byte(text), 0o600); err != nil {
				return nil, "", err
			}
		}
	}
	content, err := json.Marshal(map[string]any{"Replace": replaced})
	overlay = filepath.Join(folder, "overlay.json")
	return mutants, overlay, errors.Join(err, os.WriteFile(overlay, content, 0o600))
}

// loaded is a package with its syntax and types.
type loaded struct {
	*types.Package

	dir   string
	set   *token.FileSet
	files map[string]*ast.File // by path
	info  types.Info
}

// load reads the package in a folder. The types of what it imports are those that the compiler has written.
func load(name string) (*loaded, error) {
	list := exec.Command("go", "list", "-C", name, "-export", "-deps", "-f",
		"{{.ImportPath}}\t{{.Export}}\t{{.Dir}}\t{{join .GoFiles \"\\t\"}}", ".")
	list.Stderr = os.Stderr
	output, err := list.Output()
	if err != nil {
		return nil, fmt.Errorf("listing packages: %w", err)
	}
	exports := map[string]string{}
	var own []string // the fields of the package itself, which comes last
	for line := range strings.Lines(string(output)) {
		own = strings.Split(strings.TrimSuffix(line, "\n"), "\t")
		exports[own[0]] = own[1]
	}
	p := &loaded{dir: own[2], set: token.NewFileSet(), files: map[string]*ast.File{}, info: types.Info{
		Types: map[ast.Expr]types.TypeAndValue{}, Selections: map[*ast.SelectorExpr]*types.Selection{},
		Defs: map[*ast.Ident]types.Object{}, Implicits: map[ast.Node]types.Object{},
	}}
	for _, name := range own[3:] {
		path := filepath.Join(p.dir, name)
		if p.files[path], err = parser.ParseFile(p.set, path, nil, parser.SkipObjectResolution); err != nil {
			return nil, err
		}
	}
	lookup := func(path string) (io.ReadCloser, error) { return os.Open(exports[path]) }
	config := types.Config{Importer: importer.ForCompiler(p.set, "gc", lookup)}
	p.Package, err = config.Check(own[0], p.set, slices.Collect(maps.Values(p.files)), &p.info)
	return p, err
}

// source is a file that gets mutants, by text that is inserted: so a mutant may lie within another one.
type source struct {
	*loaded

	path, text    string
	syntax        *ast.File
	mutants       *[]mutant
	before, after map[int]string // what is inserted at an offset: before what begins there, and after what ends there
}

// rewrite returns the text with all mutants.
func (s *source) rewrite() string {
	for _, declaration := range s.syntax.Decls {
		if function, ok := declaration.(*ast.FuncDecl); ok && function.Body != nil {
			ast.PreorderStack(function.Body, nil, func(n ast.Node, stack []ast.Node) bool {
				s.visit(n, stack)
				return true
			})
		}
	}
	var all strings.Builder
	for i := range len(s.text) + 1 {
		all.WriteString(s.after[i] + s.before[i])
		if i < len(s.text) {
			all.WriteByte(s.text[i])
		}
	}
	return all.String()
}

func (s *source) textOf(n ast.Node) string { return s.text[s.offset(n.Pos()):s.offset(n.End())] }

func (s *source) offset(at token.Pos) int { return s.set.Position(at).Offset }

// add adds a mutant, and returns the condition under which it is on.
func (s *source) add(n ast.Node, what string) string {
	number := len(*s.mutants) + 1
	line := s.set.Position(n.Pos()).Line
	*s.mutants = append(*s.mutants, mutant{number, fmt.Sprintf("%s:%d: %s", s.name(), line, what)})
	return fmt.Sprintf("mutantIs(%d)", number)
}

// name returns the path of the file within its module.
func (s *source) name() string {
	path := strings.Split(s.Path(), "/")
	return strings.Join(append(path[min(len(path), 3):], filepath.Base(s.path)), "/")
}

// wrap inserts text before and after a node: that of an outer one first and last.
func (s *source) wrap(n ast.Node, before, after string) {
	from, to := s.offset(n.Pos()), s.offset(n.End())
	s.before[from] += before
	s.after[to] = after + s.after[to]
}

// replace adds mutants in which an expression is another one, by name.
func (s *source) replace(n ast.Expr, typeName string, variants ...[2]string) {
	if typeName == "" {
		return
	}
	var cases strings.Builder
	for _, variant := range variants {
		fmt.Fprintf(&cases, "if %s { return %s }; ", s.add(n, variant[0]), variant[1])
	}
	s.wrap(n, fmt.Sprintf("func() %s { %sreturn (", typeName, &cases), ") }()")
}

// typeOf returns the name of an expression's type in this file; empty if it has none there, or if the expression is a constant.
func (s *source) typeOf(n ast.Expr) string {
	tv := s.info.Types[n]
	if tv.Type == nil || tv.Value != nil {
		return ""
	}
	known := true
	name := types.TypeString(types.Default(tv.Type), func(p *types.Package) string {
		if p == s.Package {
			return ""
		}
		for _, imported := range s.syntax.Imports {
			if name := s.info.PkgNameOf(imported); name.Imported() == p {
				return name.Name()
			}
		}
		known = false
		return ""
	})
	if !known {
		return ""
	}
	return name
}
