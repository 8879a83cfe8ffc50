package main

import (
	"go/ast"
	"go/token"
	"go/types"
	"regexp"
	"slices"
	"strings"
)

// swaps are the operators that take the place of others.
var swaps = map[token.Token][]token.Token{
	token.LSS: {token.LEQ, token.GEQ}, token.LEQ: {token.LSS, token.GTR}, token.GTR: {token.GEQ, token.LEQ},
	token.GEQ: {token.GTR, token.LSS}, token.EQL: {token.NEQ}, token.NEQ: {token.EQL},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL}, token.REM: {token.MUL},
	token.SHL: {token.SHR}, token.SHR: {token.SHL},
	token.ADD_ASSIGN: {token.SUB_ASSIGN}, token.SUB_ASSIGN: {token.ADD_ASSIGN}, token.INC: {token.DEC}, token.DEC: {token.INC},
}

// kept are the calls that no mutant drops: what is logged is not tested, and a lock that is missing is for the race detector.
var kept = regexp.MustCompile(`^(log\.|logger\.|line\.|panic\(|[\w.]+\.(Log\.|R?(Lock|Unlock)\(\)))`)

// visit adds the mutants of a node.
func (s *source) visit(n ast.Node, stack []ast.Node) {
	switch n := n.(type) {
	case *ast.BinaryExpr:
		s.swap(n)
	case *ast.UnaryExpr:
		if n.Op == token.NOT {
			s.replace(n, s.typeOf(n), [2]string{"! dropped", s.textOf(n.X)})
		}
	case *ast.CallExpr:
		s.exchange(n)
	case *ast.SelectorExpr:
		s.readCache(n, stack)
	case *ast.IfStmt:
		s.negate(n.Cond)
	case *ast.ReturnStmt:
		for _, result := range n.Results {
			s.negate(result)
		}
	case *ast.BlockStmt:
		s.drop(n.List)
	case *ast.CommClause:
		s.drop(n.Body)
	case *ast.CaseClause:
		if of, ok := stack[len(stack)-2].(*ast.SwitchStmt); ok && of.Tag == nil {
			for _, condition := range n.List {
				s.negate(condition)
			}
		}
		s.drop(n.Body)
	}
}

// swap adds mutants with another operator, or with only one of two conditions.
func (s *source) swap(n *ast.BinaryExpr) {
	left, right, operator := s.textOf(n.X), s.textOf(n.Y), n.Op.String()
	if n.Op == token.LAND || n.Op == token.LOR {
		s.replace(n, s.typeOf(n), [2]string{operator + " left only", left}, [2]string{operator + " right only", right})
		return
	}
	if s.isText(n) {
		return
	}
	var variants [][2]string
	for _, other := range swaps[n.Op] {
		variants = append(variants, [2]string{operator + " → " + other.String(), left + " " + other.String() + " " + right})
	}
	if variants != nil {
		s.replace(n, s.typeOf(n), variants...)
	}
}

// isText reports whether an expression is a string, which has only one of the operators.
func (s *source) isText(n ast.Expr) bool {
	of := s.info.TypeOf(n) // nil for the blank identifier
	if of == nil {
		return false
	}
	basic, ok := of.Underlying().(*types.Basic)
	return ok && basic.Info()&types.IsString != 0
}

// exchange adds a mutant with max for min, or min for max.
func (s *source) exchange(n *ast.CallExpr) {
	other := map[string]string{"min": "max", "max": "min"}
	if name, ok := n.Fun.(*ast.Ident); ok && other[name.Name] != "" && s.info.Types[name].IsBuiltin() {
		instead := other[name.Name]
		s.replace(n, s.typeOf(n), [2]string{name.Name + " → " + instead, instead + strings.TrimPrefix(s.textOf(n), name.Name)})
	}
}

// negate adds a mutant in which a condition without operators is the opposite.
func (s *source) negate(n ast.Expr) {
	basic, ok := s.info.TypeOf(n).(*types.Basic)
	if !ok || basic.Info()&types.IsBoolean == 0 {
		return
	}
	switch n := ast.Unparen(n).(type) {
	case *ast.BinaryExpr, *ast.UnaryExpr:
	default:
		s.replace(n, "bool", [2]string{"negated: " + shorten(s.textOf(n)), "!(" + s.textOf(n) + ")"})
	}
}

// readCache adds a mutant in which a read goes to the cache rather than to the API server.
func (s *source) readCache(n *ast.SelectorExpr, stack []ast.Node) {
	selection := s.info.Selections[n]
	if n.Sel.Name != "live" || selection == nil {
		return
	}
	isRead := false
	switch parent := stack[len(stack)-1].(type) {
	case *ast.SelectorExpr:
		isRead = parent.Sel.Name == "Get" || parent.Sel.Name == "List"
	case *ast.CompositeLit:
		isRead = true
	case *ast.CallExpr:
		signature, ok := s.info.TypeOf(parent.Fun).(*types.Signature)
		at := slices.Index(parent.Args, ast.Expr(n))
		isRead = ok && at >= 0 && at < signature.Params().Len() &&
			strings.HasSuffix(signature.Params().At(at).Type().String(), "client.Reader")
	}
	for _, name := range []string{"cache", "client"} {
		cache, _, _ := types.LookupFieldOrMethod(selection.Recv(), true, s.Package, name)
		if isRead && cache != nil {
			s.replace(n, "client.Reader", [2]string{"live → " + name, s.textOf(n.X) + "." + name})
			return
		}
	}
}

// drop adds mutants without each of the statements, and with the opposite of what it adds.
func (s *source) drop(statements []ast.Stmt) {
	for _, n := range statements {
		s.dropOne(n)
	}
}

func (s *source) dropOne(n ast.Stmt) {
	text, opposite, operator := s.textOf(n), "", token.ILLEGAL
	switch n := n.(type) {
	case *ast.ExprStmt:
		if kept.MatchString(text) {
			return
		}
	case *ast.AssignStmt:
		if n.Tok == token.DEFINE {
			return
		}
		if operator = n.Tok; s.isText(n.Lhs[0]) {
			operator = token.ILLEGAL
		}
	case *ast.IncDecStmt:
		operator = n.Tok
	case *ast.BranchStmt:
		if n.Tok != token.BREAK && n.Tok != token.CONTINUE {
			return
		}
	case *ast.SendStmt, *ast.GoStmt:
	default:
		return
	}
	if other := swaps[operator]; other != nil {
		opposite = strings.Replace(text, operator.String(), other[0].String(), 1)
		opposite = "if " + s.add(n, operator.String()+" → "+other[0].String()) + " { " + opposite + " } else "
	}
	s.wrap(n, opposite+"if !"+s.add(n, "dropped: "+shorten(text))+" { ", " }")
}

// shorten returns the beginning of a text in one line.
func shorten(text string) string {
	text = strings.Join(strings.Fields(text), " ")
	if most := 70; len(text) > most {
		text = strings.ToValidUTF8(text[:most], "") + "…"
	}
	return text
}
