/**
 * A header's name as CGI, WSGI and similar interfaces read it: to them, `x_user` and `x-user` are one header.
 *
 * @param name lower case
 */
export function hyphenated(name: string): string {
  return name.includes('_') ? name.replaceAll('_', '-') : name;
}
