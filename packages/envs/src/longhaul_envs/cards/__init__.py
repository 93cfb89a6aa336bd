"""What the card games share: cards and their pictures. No environment."""
