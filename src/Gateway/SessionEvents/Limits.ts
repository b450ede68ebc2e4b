// Without imports: the thread that writes histories takes it in, and effect would cost that 40 MB.

/** Receipts that are kept of one session. */
export const maxReceipts = 10_000
