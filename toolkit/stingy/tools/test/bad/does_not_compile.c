/* The next function uses an undeclared one. */

int f(void)
{
	return nobody_declares_this;
}
