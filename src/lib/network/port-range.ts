/** A range of ports that includes both ends. */
export interface PortRange {
  first: number;
  last: number;
}
