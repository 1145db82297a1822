// A stream that is spread over the links of a session travels as segments on streams of their own, one or more on each link:
// its lanes. A lane begins with the number of the stream's link and its id there.

/** How a segment leaves its stream: it goes on, its sender's side ends, or it is reset. */
export type SegmentEnd = 'none' | 'fin' | 'reset';

const ENDS: readonly SegmentEnd[] = ['none', 'fin', 'reset'];

export const LANE_HEADER = 6;
/** Instead of a link: the gateway asks for as many links as the id says. Only agents open some. */
export const LINKS_WANTED = 0xffff;
/** Six bytes of offset in the stream, one for the end, three of length. */
export const SEGMENT_HEADER = 10;
/** Longer ones would hold up the stream when their link does. */
export const MAX_SEGMENT = 16_384;

export interface Segment {
  offset: number;
  length: number;
  end: SegmentEnd;
}

export function laneHeader(link: number, streamId: number): Buffer {
  const header = Buffer.allocUnsafe(LANE_HEADER);
  header.writeUInt16BE(link, 0);
  header.writeUInt32BE(streamId, 2);
  return header;
}

export function segmentHeader({ offset, length, end }: Segment): Buffer {
  const header = Buffer.allocUnsafe(SEGMENT_HEADER);
  header.writeUIntBE(offset, 0, 6);
  header.writeUInt8(ENDS.indexOf(end), 6);
  header.writeUIntBE(length, 7, 3);
  return header;
}

/** @returns null when it cannot be one */
export function readSegment(header: Buffer): Segment | null {
  const end = ENDS[header.readUInt8(6)];
  const length = header.readUIntBE(7, 3);
  if (end === undefined || length > MAX_SEGMENT || (length === 0 && end === 'none')) return null;
  return { offset: header.readUIntBE(0, 6), length, end };
}
