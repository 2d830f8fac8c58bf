/* The next function uses what nobody declares. */

int f(void)
{
	return nobody_declares_this;
}
