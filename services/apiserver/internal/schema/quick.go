package schema

// What is plainly right need not be looked at with regular expressions. Each of these says yes only where Kubernetes' own
// check has nothing to say; that has the last word, and the words.

const (
	maxLabel     = 63
	maxSubdomain = 253
)

func alphanumeric(c byte) bool { return lower(c) || c >= 'A' && c <= 'Z' }

func lower(c byte) bool { return c >= 'a' && c <= 'z' || c >= '0' && c <= '9' }

// plainLabel is a DNS label.
func plainLabel(s string) bool {
	if s == "" || len(s) > maxLabel || !lower(s[0]) || !lower(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if !lower(s[i]) && s[i] != '-' {
			return false
		}
	}
	return true
}

// plainSubdomain is a DNS subdomain.
func plainSubdomain(s string) bool {
	if len(s) > maxSubdomain {
		return false
	}
	begin := 0
	for i := range len(s) + 1 {
		if i < len(s) && s[i] != '.' {
			continue
		}
		if !plainLabel(s[begin:i]) {
			return false
		}
		begin = i + 1
	}
	return true
}

// plainName is a label's value that is not empty, or a qualified name without a prefix.
func plainName(s string) bool {
	if s == "" || len(s) > maxLabel || !alphanumeric(s[0]) || !alphanumeric(s[len(s)-1]) {
		return false
	}
	for i := range len(s) {
		if c := s[i]; !alphanumeric(c) && c != '-' && c != '_' && c != '.' {
			return false
		}
	}
	return true
}

// plainQualified is a qualified name: that of a label, an annotation, a resource.
func plainQualified(s string) bool {
	for i := range len(s) {
		if s[i] == '/' {
			return plainSubdomain(s[:i]) && plainName(s[i+1:])
		}
	}
	return plainName(s)
}
