// Package browsertest shows pages to a headless Chromium in tests, and says what it makes of them.
package browsertest
