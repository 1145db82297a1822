/**
 * The name that a Host header or SNI asks for, as endpoints are registered under: in lower case,
 * without port and without the dot that marks a name as absolute.
 */
export function hostNameOf(host: string): string {
  const colon = host.indexOf(':', host.startsWith('[') ? host.indexOf(']') : 0);
  let name = colon === -1 ? host : host.slice(0, colon);
  if (name.endsWith('.')) name = name.slice(0, -1);
  return name.toLowerCase();
}
