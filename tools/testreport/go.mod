module trireme.dev/tools/testreport

go 1.26
