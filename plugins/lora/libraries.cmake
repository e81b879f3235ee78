# For the regular expressions of PEFT's configurations.
list(APPEND libraries galley-pcre2)
