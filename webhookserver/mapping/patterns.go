package mapping

import (
	"errors"
	"regexp"
	"regexp/syntax"
	"sync"

	"github.com/google/cel-go/common/types"
	"github.com/google/cel-go/common/types/ref"
)

// pattern is a compiled regular expression and what a byte of text costs it at most.
type pattern struct {
	*regexp.Regexp
	instructions int
}

// patterns remembers compiled regular expressions: nearly all stand in a mapping, as they are.
var patterns = struct {
	sync.RWMutex
	compiled     map[string]pattern
	instructions int // of all of them
}{compiled: map[string]pattern{}}

var (
	errPatternLong = errors.New("the regular expression is too long")
	errPatternWork = errors.New("the text is too long for this regular expression")
)

// compilePattern compiles a regular expression, or remembers it.
func compilePattern(text string) (pattern, error) {
	if len(text) > maxPattern {
		return pattern{}, errPatternLong
	}
	patterns.RLock()
	p, found := patterns.compiled[text]
	patterns.RUnlock()
	if found {
		return p, nil
	}
	parsed, err := syntax.Parse(text, syntax.Perl)
	if err != nil {
		return pattern{}, err
	}
	program, err := syntax.Compile(parsed.Simplify())
	if err != nil {
		return pattern{}, err
	}
	if len(program.Inst) > maxPatternInstructions {
		return pattern{}, errPatternLong
	}
	compiled, err := regexp.Compile(text)
	if err != nil {
		return pattern{}, err
	}
	p = pattern{Regexp: compiled, instructions: len(program.Inst)}
	patterns.Lock()
	defer patterns.Unlock()
	if len(patterns.compiled) >= maxPatternsRemembered || patterns.instructions+p.instructions > maxInstructionsRemembered {
		clear(patterns.compiled)
		patterns.instructions = 0
	}
	patterns.compiled[text] = p
	patterns.instructions += p.instructions
	return p, nil
}

// work is the most steps that one match in a text takes.
func (p pattern) work(text string) int {
	return (len(text) + 1) * p.instructions
}

// prepare reads the text and the regular expression of a call and bounds what it may take.
func prepare(args []ref.Val) (string, pattern, ref.Val) {
	text, ok := args[0].(types.String)
	expression, isText := args[1].(types.String)
	if !ok || !isText {
		return "", pattern{}, types.MaybeNoSuchOverloadErr(args[0])
	}
	p, err := compilePattern(string(expression))
	if err != nil {
		return "", pattern{}, types.WrapErr(err)
	}
	if p.work(string(text)) > maxPatternWork {
		return "", pattern{}, types.WrapErr(errPatternWork)
	}
	return string(text), p, nil
}

// matches is text.matches(expression) of CEL's standard library.
func matches(args ...ref.Val) ref.Val {
	text, p, problem := prepare(args)
	if problem != nil {
		return problem
	}
	return types.Bool(p.MatchString(text))
}

// find is text.find(expression) of Kubernetes' library: the first match, or the empty string.
func find(args ...ref.Val) ref.Val {
	text, p, problem := prepare(args)
	if problem != nil {
		return problem
	}
	return types.String(p.FindString(text))
}

// findAll is text.findAll(expression) and text.findAll(expression, most) of Kubernetes' library. It may read
// the whole rest of the text for each match, so a long text may have few.
func findAll(args ...ref.Val) ref.Val {
	text, p, problem := prepare(args)
	if problem != nil {
		return problem
	}
	allowed := min(maxPatternMatches, 1+maxPatternWork/p.work(text))
	most := allowed
	if len(args) > 2 {
		n, ok := args[2].(types.Int)
		if !ok {
			return types.MaybeNoSuchOverloadErr(args[2])
		}
		if n >= 0 && n < types.Int(most) {
			most = int(n)
		}
	}
	found := p.FindAllString(text, most)
	if len(found) == allowed {
		return types.WrapErr(errPatternWork)
	}
	if found == nil {
		found = []string{}
	}
	return types.DefaultTypeAdapter.NativeToValue(found)
}
