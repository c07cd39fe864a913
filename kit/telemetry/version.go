package telemetry

import "runtime/debug"

// version is set by the linker: -X trireme.dev/kit/telemetry.version=v1.2.3.
var version string

// Version is that of the program that runs: what the linker was told, otherwise the module's, otherwise v0.0.0-devel.
func Version() string {
	if version != "" {
		return version
	}
	if info, ok := debug.ReadBuildInfo(); ok && info.Main.Version != "" && info.Main.Version != "(devel)" {
		return info.Main.Version
	}
	return "v0.0.0-devel"
}
