package message

import (
	"regexp/syntax"
	"strings"
	"sync"
)

// words returns, for each form, words in lower case of which every match has one, or nil. Looking for words costs far
// less than an expression.
func words(forms []form) func() [][]string {
	return sync.OnceValue(func() [][]string {
		all := make([][]string, len(forms))
		for i, f := range forms {
			if re, err := syntax.Parse(f.text().String(), syntax.Perl); err == nil {
				all[i] = literals(re)
			}
		}
		return all
	})
}

var (
	kernelWords  = words(kernelForms)
	ownWords     = words(ownForms)
	programWords = words(programForms)
)

func literals(re *syntax.Regexp) []string {
	switch re.Op {
	case syntax.OpLiteral:
		return []string{strings.ToLower(string(re.Rune))}
	case syntax.OpCapture, syntax.OpPlus:
		return literals(re.Sub[0])
	case syntax.OpRepeat:
		if re.Min > 0 {
			return literals(re.Sub[0])
		}
	case syntax.OpAlternate:
		var all []string
		for _, sub := range re.Sub {
			list := literals(sub)
			if list == nil {
				return nil
			}
			all = append(all, list...)
		}
		return all
	case syntax.OpConcat:
		var best []string
		for _, sub := range re.Sub {
			if list := literals(sub); list != nil && (best == nil || shortest(list) > shortest(best)) {
				best = list
			}
		}
		return best
	}
	return nil
}

func shortest(list []string) int {
	n := len(list[0])
	for _, s := range list {
		n = min(n, len(s))
	}
	return n
}
