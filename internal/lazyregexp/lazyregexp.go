// Package lazyregexp provides regular expressions that are compiled at their first use. Compiling them all took more
// than a millisecond of every start of the program, which seldom needs any.
package lazyregexp

import (
	"regexp"
	"sync"
)

// A Regexp is a regular expression of package regexp, compiled at its first use. A wrong expression panics only then,
// so each needs a test that uses it. A Regexp may be used concurrently.
type Regexp struct {
	once sync.Once
	text string
	re   *regexp.Regexp
}

// New returns the expression without compiling it.
func New(text string) *Regexp { return &Regexp{text: text} }

// Get returns the compiled expression.
func (r *Regexp) Get() *regexp.Regexp {
	r.once.Do(func() { r.re = regexp.MustCompile(r.text) })
	return r.re
}

// The methods are the used ones of regexp.Regexp.

func (r *Regexp) FindSubmatch(b []byte) [][]byte             { return r.Get().FindSubmatch(b) }
func (r *Regexp) String() string                             { return r.text }
func (r *Regexp) Match(b []byte) bool                        { return r.Get().Match(b) }
func (r *Regexp) MatchString(s string) bool                  { return r.Get().MatchString(s) }
func (r *Regexp) Find(b []byte) []byte                       { return r.Get().Find(b) }
func (r *Regexp) FindString(s string) string                 { return r.Get().FindString(s) }
func (r *Regexp) FindIndex(b []byte) []int                   { return r.Get().FindIndex(b) }
func (r *Regexp) FindStringIndex(s string) []int             { return r.Get().FindStringIndex(s) }
func (r *Regexp) FindStringSubmatch(s string) []string       { return r.Get().FindStringSubmatch(s) }
func (r *Regexp) FindStringSubmatchIndex(s string) []int     { return r.Get().FindStringSubmatchIndex(s) }
func (r *Regexp) FindAllString(s string, n int) []string     { return r.Get().FindAllString(s, n) }
func (r *Regexp) FindAllIndex(b []byte, n int) [][]int       { return r.Get().FindAllIndex(b, n) }
func (r *Regexp) FindAllSubmatch(b []byte, n int) [][][]byte { return r.Get().FindAllSubmatch(b, n) }
func (r *Regexp) ReplaceAll(b, repl []byte) []byte           { return r.Get().ReplaceAll(b, repl) }
func (r *Regexp) ReplaceAllString(s, repl string) string     { return r.Get().ReplaceAllString(s, repl) }
func (r *Regexp) SubexpIndex(name string) int                { return r.Get().SubexpIndex(name) }
func (r *Regexp) ReplaceAllFunc(b []byte, repl func([]byte) []byte) []byte {
	return r.Get().ReplaceAllFunc(b, repl)
}
func (r *Regexp) Split(s string, n int) []string { return r.Get().Split(s, n) }
func (r *Regexp) FindAllStringSubmatch(s string, n int) [][]string {
	return r.Get().FindAllStringSubmatch(s, n)
}
func (r *Regexp) FindAllStringSubmatchIndex(s string, n int) [][]int {
	return r.Get().FindAllStringSubmatchIndex(s, n)
}
func (r *Regexp) ReplaceAllStringFunc(s string, repl func(string) string) string {
	return r.Get().ReplaceAllStringFunc(s, repl)
}
