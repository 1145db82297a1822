/** A connection that is not what the inspector understands. Its bytes still pass, unseen. */
export class ParseFailure extends Error {}
