"""Survey of a host before a campaign changes anything: what can be built, what it will take, what is refused."""
