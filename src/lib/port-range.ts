/** From first to last, both included. */
export interface PortRange {
  first: number;
  last: number;
}
