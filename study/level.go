package study

import (
	"slices"
	"strings"

	"github.com/rackless/rackless/internal/lists"
)

// SettingsText formats the settings of a run in the order of the factors, leaving out constants: "placement=pin
// contention=cpu:2", or "ECN, no PFC" if the levels have names.
func (s *Spec) SettingsText(settings map[string]string) string {
	text := s.levelsText(settings, func(string) bool { return false })
	if text == "" {
		return strings.Join(lists.Map(s.Factors, func(f Factor) string { return f.text(settings[f.Name]) }), " ")
	}
	return text
}

// WhereText formats the settings of all factors but one, as Comparison.Where is.
func (s *Spec) WhereText(settings map[string]string, factor string) string {
	return s.levelsText(settings, func(name string) bool { return name == factor })
}

func (s *Spec) levelsText(settings map[string]string, without func(factor string) bool) string {
	text, comma := "", false
	for i := range s.Factors {
		f := &s.Factors[i]
		level := settings[f.Name]
		// A run of an earlier version of the study may have had another level.
		if without(f.Name) || len(f.Levels) == 1 && level == f.Levels[0] {
			continue
		}
		named := f.name(level) != ""
		if text != "" {
			// Names may have spaces.
			text += map[bool]string{true: ", ", false: " "}[comma || named]
		}
		text, comma = text+f.text(level), named
	}
	return text
}

// Constants returns the settings that are the same in all runs, such as "link.rate=200Mbit".
func (s *Spec) Constants() []string {
	constant := lists.Filter(s.Factors, func(f Factor) bool { return len(f.Levels) == 1 })
	return lists.Map(constant, func(f Factor) string { return f.Name + "=" + f.Levels[0] })
}

// LevelName returns the name of a level, or the level itself without one. Of a joint comparison it takes several
// factors with their levels.
func (s *Spec) LevelName(factor, level string) string {
	factors, levels := strings.Split(factor, and), strings.Split(level, and)
	if len(factors) != len(levels) {
		return level
	}
	for i, name := range factors {
		f := lists.Ref(s.Factors, func(f *Factor) bool { return f.Name == name })
		if f != nil && f.name(levels[i]) != "" {
			levels[i] = f.name(levels[i])
		}
	}
	return strings.Join(levels, and)
}

// NameLevels takes the names of levels from another version of the study's file.
func (s *Spec) NameLevels(from *Spec) {
	for i := range s.Factors {
		f := &s.Factors[i]
		other := lists.Ref(from.Factors, func(o *Factor) bool { return o.Name == f.Name })
		if other != nil && slices.Equal(other.Levels, f.Levels) {
			f.Names = other.Names
		}
	}
}

// name returns "" for a level without a name.
func (f *Factor) name(level string) string {
	i := slices.Index(f.Levels, level)
	if i < 0 || i >= len(f.Names) {
		return ""
	}
	return f.Names[i]
}

func (f *Factor) text(level string) string {
	if name := f.name(level); name != "" {
		return name
	}
	return f.Name + "=" + level
}
