package render

import "strings"

// tuned returns a profile for tuned, for hosts where that service owns such settings.
func (v *view) tuned() []Artifact {
	if v.given.IsEmpty() {
		return nil
	}
	summary := strings.ReplaceAll("Host of lab "+oneLine(v.plan.Lab), "$", "") // $ begins a variable of tuned
	return []Artifact{text("tuned/rackless-"+v.lab+"/tuned.conf", v.page("tuned.conf", summary))}
}
